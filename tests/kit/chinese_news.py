"""Pairs of short Chinese news articles of our own, in the form of CNSE."""

from pathlib import Path

COLUMNS = ("label", "doc_id1", "doc_id2", "title1", "title2", "content1", "content2")
MORE_COLUMNS = ("keywords1", "keywords2", "category1", "category2", "time1", "time2")

# Two articles on each event, of two newspapers. The sentences on the weather are noise.
EVENTS = {
    "bridge": (
        "跨江大桥今日通车。大桥全长三公里，连接南岸和北岸。市长出席通车仪式并讲话。当天天气晴朗。",
        "连接南岸和北岸的跨江大桥正式通车！市长在仪式上说，大桥将缩短上班时间。记者在现场采访了市民。",
    ),
    "library": (
        "新图书馆周六向读者开放。图书馆藏书五十万册，设有儿童阅览室。读者可以免费办理借书证。昨天下雨。",
        "市民期待已久的新图书馆开放了。儿童阅览室里坐满了读者。图书馆馆长介绍，借书证免费办理。",
    ),
    "panda": (
        "动物园的大熊猫产下双胞胎。饲养员说，熊猫宝宝体重正常。动物园将在秋天让游客参观熊猫宝宝。",
        "大熊猫双胞胎在动物园出生，饲养员昼夜照顾熊猫宝宝。游客秋天可以参观。天气转凉。",
    ),
    "train": (
        "高速列车线路全线试运行。列车最高时速三百五十公里。铁路公司表示，票价将在下月公布。",
        "铁路公司宣布高速列车开始试运行，时速达到三百五十公里。乘客关心票价。今天多云。",
    ),
    "football": (
        "城市足球队赢得决赛。前锋在最后一分钟进球。球迷在体育场外庆祝到深夜。",
        "决赛最后一分钟，足球队前锋进球夺冠。球迷涌向体育场庆祝胜利。教练感谢球迷。",
    ),
    "museum": (
        "博物馆展出唐代瓷器。展览共有两百件瓷器，其中十件首次展出。观众可以预约参观展览。",
        "唐代瓷器展览在博物馆开幕。首次展出的十件瓷器吸引了许多观众。参观需要预约。",
    ),
}


def article(event: str, side: int) -> str:
    """Return the text of one of the two articles on an event."""
    return EVENTS[event][side]


def news_lines() -> list[str]:
    """Return the lines of a file: each event with itself and with the next two events."""
    names = list(EVENTS)
    lines = ["|".join([*COLUMNS, *MORE_COLUMNS])]
    for place, name in enumerate(names):
        for step in range(3):
            other = names[(place + step) % len(names)]
            titles = (EVENTS[name][0].split("。")[0], EVENTS[other][1].split("。")[0])
            texts = (article(name, 0), article(other, 1))
            ids = (str(2 * place), str(2 * names.index(other) + 1))
            more = ("新闻 城市", "新闻 城市", "社会", "社会", "1500000000", "1500000000")
            lines.append("|".join([str(int(step == 0)), *ids, *titles, *texts, *more]))
    return lines


def write_news(path: Path) -> Path:
    """Write the file of pairs."""
    path.write_text("\n".join(news_lines()) + "\n", encoding="utf-8")
    return path
